"""How many examples the tests of laws try: what the profile says (``conftest.py``), or a part of it."""

from hypothesis import settings

FEW = settings(max_examples=max(settings().max_examples // 3, 1))  # where one takes long
