/** The first view: three questions in metres and minutes, and what to do about the answers. */

import * as service from "./service.js";
import { figuresTable } from "./tables.js";
import { byId, View } from "./view.js";
import { bundleInWords, every, metres, number } from "./words.js";

const ON_THE_ROAD = [
  "Somebody follows all reports of a trip",
  "They get nearer than by one report. No formula says how near: Replay shows a drive, and geoblanket plan estimates it.",
  "nearer",
];

export class StartView extends View {
  constructor(...parts) {
    super("start", ...parts);
    this.load = service.latestOnly((wish) => service.advice(wish));
    for (const input of byId("wish").querySelectorAll("input")) input.addEventListener("change", () => this.ask());
    for (const [id, view] of [["start-explore", "explore"], ["start-home", "home"]]) {
      byId(id).addEventListener("click", () => this.showIn(view));
    }
    this.state.on(["view"], () => this.active && this.ask());
  }

  get wish() {
    const chosen = (name) => byId("wish").querySelector(`input[name=${name}]:checked`).value;
    return { off_m: Number(chosen("off")), interval_s: Number(chosen("interval")), home: chosen("home") === "yes" };
  }

  async ask() {
    await this.attempt(() => this.load((advice) => this.show(advice), this.wish));
  }

  show(advice) {
    this.state.set({ advice });
    byId("start-figures").replaceChildren(figuresTable([ofReport(advice), ON_THE_ROAD, ...atHome(advice)]));
    const fence = advice.fence ? `, a fence of ${number(advice.fence.radius_km)} km around the home` : "";
    byId("start-words").textContent =
      `In this project's terms: a lattice with ε = ${advice.epsilon} per km${fence}, and one report every ` +
      `${every(advice.interval_s)}. An hour of reports on the road adds up to ${number(advice.hour_cost)} per km: a trip as a whole is not hidden.`;
    byId("start-commands").textContent = advice.commands.join("\n");
    this.showNearest(advice);
  }

  showNearest({ nearest, epsilon }) {
    const bundle = this.overview.bundles.find(({ sha256 }) => sha256 === nearest);
    for (const id of ["start-explore", "start-home"]) byId(id).disabled = !bundle;
    const like = bundle?.epsilon === epsilon ? "" : ` Yours would have ε = ${epsilon}.`;
    byId("start-nearest").textContent = bundle
      ? `Nearest of the bundles that are served here: ${bundleInWords(bundle)}.${like}`
      : "No lattice is served here: make one with the commands below, and serve it.";
  }

  showIn(view) {
    this.state.set({ bundle: this.state.values.advice.nearest });
    window.location.hash = view;
  }
}

function ofReport({ median_m: median, most_m: most }) {
  const hint = `19 of 20 are within ${metres(most)}. Now and then one is right on the spot.`;
  return ["Half of all single reports", hint, `within ${metres(median)}`];
}

/** Nights at one place: with hold, a draw for each. */
function atHome({ home_m: found, fence }) {
  const bare = fence ? "Without a fence: " : "";
  const rows = [
    ["A night at home", "With hold a stay is one draw, however long.", `${metres(found[1])} off`],
    ["… 7 nights", `${bare}each return is a new draw, and draws average out.`, `${metres(found[7])} off`],
    ["… 30 nights", `${bare}each return is a new draw, and draws average out.`, `${metres(found[30])} off`],
  ];
  if (!fence) return rows;
  const hint = `Every position within ${number(fence.radius_km)} km and a margin counts as one point, drawn once.`;
  return [...rows, ["… any number of nights, with a fence", hint, `${metres(fence.home_m)} off`]];
}
