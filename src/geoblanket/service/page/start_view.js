/** The first view: three questions in metres and minutes, and what to do about the answers. */

import { onTheRoad } from "./plan_view.js";
import * as service from "./service.js";
import { replayFigures } from "./tracked.js";
import { bundleInWords, every, metres, number } from "./words.js";

const byId = (id) => document.getElementById(id);

export class StartView {
  /**
   * @param {import("./state.js").State} state
   * @param {object} overview
   * @param {(error: Error|null) => void} report
   */
  constructor(state, overview, report) {
    this.state = state;
    this.overview = overview;
    this.report = report;
    this.load = service.latestOnly((wish) => service.advice(wish));
    for (const input of byId("wish").querySelectorAll("input")) input.addEventListener("change", () => this.ask());
    for (const [id, view] of [["start-explore", "explore"], ["start-replay", "replay"]]) {
      byId(id).addEventListener("click", () => this.showIn(view));
    }
    state.on(["view"], () => this.active && this.ask());
  }

  get active() {
    return this.state.values.view === "start";
  }

  get wish() {
    const chosen = (name) => byId("wish").querySelector(`input[name=${name}]:checked`).value;
    return { off_m: Number(chosen("off")), interval_s: Number(chosen("interval")), parks: chosen("parks") === "yes" };
  }

  async ask() {
    try {
      await this.load((advice) => this.show(advice), this.wish);
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  show(advice) {
    this.state.set({ advice });
    byId("start-figures").replaceChildren(replayFigures([ofReport(advice), this.onTheRoad(advice), ...atRest(advice)]));
    const shift = advice.anchor_epsilon === null ? "" : `, and with it a secret shift, the anchor, of ε₀ = ${advice.anchor_epsilon} for an hour`;
    byId("start-words").textContent =
      `In this project's terms: a lattice with ε = ${advice.epsilon} per km${shift}, and one report every ` +
      `${every(advice.interval_s)}. An hour of reports on the road adds up to ${number(advice.hour_cost)} per km: a trip as a whole is not hidden.`;
    byId("start-commands").textContent = advice.commands.join("\n");
    this.showNearest(advice);
  }

  showNearest({ nearest, epsilon }) {
    const bundle = this.overview.bundles.find(({ sha256 }) => sha256 === nearest);
    for (const id of ["start-explore", "start-replay"]) byId(id).disabled = !bundle;
    const like = bundle?.epsilon === epsilon ? "" : ` Yours would have ε = ${epsilon}.`;
    byId("start-nearest").textContent = bundle
      ? `Nearest of the bundles that are served here: ${bundleInWords(bundle)}.${like}`
      : "No lattice is served here: make one with the commands below, and serve it.";
  }

  /** What somebody learns who follows a trip, by the plan that is served. */
  onTheRoad({ epsilon, anchor_epsilon: anchor, interval_s: interval }) {
    const title = "Somebody follows all reports of a trip";
    const { plan } = this.overview;
    if (plan === null) {
      return [
        title,
        "They get nearer than by one report. No formula says how near: geoblanket plan --json estimates it, and " +
          "geoblanket serve --plan shows it here.",
        "not known",
      ];
    }
    const found = onTheRoad(plan, epsilon, interval);
    // The plan's table is without an anchor, which only adds noise: what bounds the error from above says nothing then.
    if (found === null || (anchor !== null && found.bound === "less than ")) {
      return [title, "The plan that is served says nothing of this.", "not known"];
    }
    const shift = anchor === null ? "" : " The secret shift adds to it.";
    const hint = `Their best guess on the road, on average, estimated on trips.${shift} Without any report: ${metres(plan.without_m)}.`;
    return [title, hint, `${anchor === null ? found.bound : "at least "}${metres(found.error_m)} off`];
  }

  showIn(view) {
    this.state.set({ a: this.state.values.advice.nearest });
    window.location.hash = view;
  }
}

function ofReport({ median_m: median, most_m: most }) {
  const hint = `19 of 20 are within ${metres(most)}. Now and then one is right on the spot.`;
  return ["Half of all single reports", hint, `within ${metres(median)}`];
}

/** A parked vehicle's reports are all of one place. */
function atRest({ anchor_epsilon: anchor, parked_m: parked, night_cost: cost }) {
  const ofHour = anchor
    ? "A secret shift stays for an hour and does not average out. Streets, habits and a drive in the same hour help a recipient."
    : "Noise that is drawn anew for each report averages out.";
  const ofNights = anchor ? "Shifts of different hours do average out." : "Nothing hides it: do not report while parked.";
  return [
    ["Parked for an hour", ofHour, `${metres(parked.hour)} off`],
    ["Parked for a night of 8 hours", `It costs at most ${number(cost)} per km.`, `${metres(parked.night)} off`],
    ["… for a week of nights", ofNights, `${metres(parked.week)} off`],
    ["… for a month of nights", ofNights, `${metres(parked.month)} off`],
  ];
}
