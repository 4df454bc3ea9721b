/** Requests of the page. Places and coordinates go in bodies, never in URLs. */

async function answered(response) {
  if (!response.ok) {
    const refusal = await response.json().catch(() => ({}));
    throw new Error(refusal.message ?? `The service answered with ${response.status}.`);
  }
  return response.json();
}

const ask = async (path, question) =>
  answered(
    await fetch(`/explore/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(question),
    }),
  );

export const overview = async () => answered(await fetch("/explore/overview"));

export const advice = (wish) => ask("start", wish);
export const atPlace = (question) => ask("place", question);
export const atCoordinate = (question) => ask("coordinate", question);
export const home = (question) => ask("home", question);
export const replay = (question) => ask("replay", question);

/** Absolute, because the map fetches it in a worker, which has no address of its own. */
export const mapUrl = (path) => new URL(`/explore/${path}`, window.location.href).href;

/**
 * Run work so that only the latest call's result is used: a slow answer never covers a newer one.
 * @param {(...args: any[]) => Promise<any>} work
 */
export function latestOnly(work) {
  let latest = 0;
  return async (use, ...args) => {
    const mine = (latest += 1);
    const result = await work(...args);
    if (mine === latest) use(result);
  };
}

/** The file of a bundle. */
export async function bundleFile(sha256) {
  const response = await fetch(`/v1/bundles/${sha256}`);
  if (!response.ok) throw new Error(`The service answered with ${response.status}.`);
  return response.arrayBuffer();
}
