// What the daemon has told, kept as the page needs it, and within bounds.

const MOST_TRIALS = 10_000; // of a job
const MOST_SEARCHES = 4; // whose trials are kept
const MOST_POWER = 300; // samples of a device
const MOST_JOBS = 200;
const MOST_SENTENCES = 5;

/** The trials of a job, and what its search says. */
export class Search {
  run = null;
  trials = new Map(); // number -> the newest data of the trial
  sentences = [];
  answer = null;
  compiled = null;
  joules = null;
  expected = null;

  /** Take in a trial, or a contender's repeat, which replaces it. */
  take(data) {
    if (data.run !== null && data.run !== this.run) {
      this.run = data.run;
      this.trials.clear();
    }
    this.trials.set(data.trial, data);
    if (this.trials.size > MOST_TRIALS) this.trials.delete(this.trials.keys().next().value);
    this.joules = data.joules ?? this.joules;
    this.expected = data.confirming ? this.expected : data.expected ?? this.expected;
  }
}

export class State {
  status = null;
  devices = new Map();
  jobs = new Map();
  searches = new Map();
  power = new Map();

  /** Forget everything: the daemon tells it anew. */
  clear() {
    this.devices.clear();
    this.jobs.clear();
    this.searches.clear();
  }

  search(job) {
    let found = this.searches.get(job);
    if (!found) {
      found = new Search();
      this.searches.set(job, found);
      for (const other of this.searches.keys()) {
        if (this.searches.size <= MOST_SEARCHES) break;
        if (other !== job && this.jobs.get(other)?.state !== "running") this.searches.delete(other);
      }
    }
    return found;
  }

  /** Take in an event; returns the names of what has changed. */
  take({ kind, job, data }) {
    switch (kind) {
      case "begin":
        if (!data.resumed) this.clear();
        return ["devices", "jobs", "search", "answers"];
      case "status":
        this.status = data;
        return ["status"];
      case "device":
        this.devices.set(data.spec, data);
        return ["devices"];
      case "job":
        return this.takeJob(data);
      case "power":
        return this.takePower(data);
      case "trial":
        this.search(job).take(data);
        return ["search", "devices"];
      case "compiled":
        this.search(job).compiled = data;
        return ["search"];
      case "told": {
        const search = this.search(job);
        search.sentences = [...search.sentences, data.sentence].slice(-MOST_SENTENCES);
        return ["search"];
      }
      case "answer":
        this.search(job).answer = data.summary;
        return ["search", "answers"];
      default:
        return [];
    }
  }

  takeJob(job) {
    const before = this.jobs.get(job.id);
    this.jobs.set(job.id, job);
    if (this.jobs.size > MOST_JOBS) {
      const ended = [...this.jobs.values()].filter((one) => one.ended_at).map((one) => one.id);
      this.jobs.delete(Math.min(...ended));
    }
    const ended = before && !before.ended_at && job.ended_at;
    return ["jobs", "search", ...(ended ? ["answers"] : [])];
  }

  takePower(sample) {
    const samples = this.power.get(sample.device) ?? [];
    samples.push(sample);
    if (samples.length > MOST_POWER) samples.shift();
    this.power.set(sample.device, samples);
    return ["devices"];
  }
}
