/** What the page asks the service for. Places and coordinates go in bodies, never in URLs. */

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

/** The cell of each place, by its number. */
export async function cells() {
  const { features } = await answered(await fetch("/explore/cells"));
  return new Map(features.map((feature) => [feature.id, feature]));
}

/** The borders of a bundle's zones, as GeoJSON. */
export const borders = async (sha256) => answered(await fetch(`/explore/borders/${sha256}`));

export const advice = (wish) => ask("start", wish);
export const outlook = (question) => ask("outlook", question);
export const conclusion = (question) => ask("conclusion", question);
export const choices = (question) => ask("choices", question);
export const replay = (question) => ask("replay", question);
export const latticeOutlook = (question) => ask("lattice/outlook", question);
export const latticeConclusion = (question) => ask("lattice/conclusion", question);
export const latticeHome = (question) => ask("lattice/home", question);
export const latticeReplay = (question) => ask("lattice/replay", question);

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
