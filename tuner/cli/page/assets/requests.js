// Requests to the daemon through the page's server.

const csrf = document.querySelector("meta[name=csrf]").content;

/** What the daemon does not do; `message` says why, for people. */
export class RefusedError extends Error {}

async function answered(response) {
  const document = await response.json().catch(() => ({}));
  if (!response.ok) throw new RefusedError(document.error?.message ?? `the server answers ${response.status}`);
  return document;
}

export async function get(path) {
  return answered(await fetch(path));
}

export async function post(path, body = {}) {
  const headers = { "content-type": "application/json", "x-tuner-csrf": csrf };
  return answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}
