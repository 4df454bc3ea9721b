/** Requests of the page. Coordinates go in bodies, never in URLs. */

async function answered(response) {
  if (response.ok) return response;
  const refusal = await response.json().catch(() => ({}));
  throw new Error(refusal.message ?? `The service answered with ${response.status}.`);
}

const ask = async (path, question) =>
  answered(
    await fetch(`/explore/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(question),
    }),
  );
const asked = async (path, question) => (await ask(path, question)).json();

export const overview = async () => (await answered(await fetch("/explore/overview"))).json();
export const consequences = (setting) => asked("consequences", setting);
export const life = (question) => asked("life", question);
export const plan = (wish) => asked("plan", wish);
export const bundleFile = async (setting) => (await ask("bundle", setting)).arrayBuffer();

/** Absolute, because the map fetches it in a worker, which has no address of its own. */
export const mapUrl = (path) => new URL(`/explore/${path}`, window.location.href).href;

/**
 * Run work so that only the latest call's result is used: a slow answer never covers a newer one.
 * @param {(...args: any[]) => Promise<any>} work
 */
export function latestOnly(work) {
  let latest = 0;
  return async (...args) => {
    const mine = (latest += 1);
    const result = await work(...args).catch((error) => {
      if (mine === latest) throw error;
    });
    return mine === latest ? result : undefined;
  };
}
