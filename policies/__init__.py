"""Search strategies, one file per policy, reached by name through ``tuner.model.registry``."""
