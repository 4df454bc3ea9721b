/** Choose: three questions or four sliders, what follows from the answers, and two settings on the same drive. */

import { figuresTable, nightsChart } from "./figures.js";
import { Player } from "./player.js";
import * as service from "./service.js";
import { possible, queryOf, SCALES } from "./settings.js";
import { byId, element, every, list, metres, modelInWords, nightsInWords, number, settingInWords } from "./words.js";

const [DRIVE_S, NIGHTS_S] = [14, 8];
const SHOWN = {
  epsilon: (value) => `ε = ${value} per km`,
  interval_s: (value) => every(value),
  hold_m: (value) => (value ? `within ${metres(value)}` : "off"),
  fence_km: (value) => (value === null ? "none" : `${number(value)} km`),
};
/** Settings that differ clearly, for a comparison: the second one reports half as far off. */
const rival = (setting) => possible({ ...setting, epsilon: Math.min(2 * setting.epsilon, 20), fence_km: null });

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const times = (count) => `${count} in 100`;

export class ChooseView {
  /** @param {object} page What all views share. */
  constructor(page) {
    this.page = page;
    this.lives = [];
    this.edited = "a";
    this.loadFigures = service.latestOnly((settings) => Promise.all(settings.map(service.consequences)));
    this.loadLives = service.latestOnly((settings, home, trip) =>
      Promise.all(settings.map((setting) => service.life({ setting, home, trip }))),
    );
    this.loadPlan = service.latestOnly(service.plan);
    this.player = new Player({ button: byId("choose-play"), slider: byId("choose-at"), ready: () => page.settled });
    for (const name of Object.keys(SCALES)) {
      byId(name).addEventListener("input", () => this.slide(name));
      byId(name).addEventListener("change", () => this.begin());
    }
    for (const input of byId("wish").querySelectorAll("input")) input.addEventListener("change", () => this.plan());
    byId("make-plan").addEventListener("click", () => this.plan());
    for (const input of byId("edited").querySelectorAll("input")) input.addEventListener("change", () => this.edit(input.value));
    byId("compare").addEventListener("click", () => this.compare());
    byId("again").addEventListener("click", () => this.begin());
    byId("share").addEventListener("click", () => this.share());
    byId("trip").addEventListener("change", () => this.begin());
    this.offerTrips();
    this.offerBundles();
  }

  get settings() {
    const { a, b } = this.page.state;
    return b ? [a, b] : [a];
  }

  enter() {
    this.showSliders();
    return this.begin();
  }

  leave() {
    this.player.stop();
  }

  offerTrips() {
    const { trips, roads } = this.page.overview;
    byId("trip-field").hidden = !trips.length;
    byId("no-roads").hidden = roads;
    byId("trip").append(
      ...trips.map(({ start, minutes, length_km: km, number: trip }) => {
        const when = start.slice(0, 16).replace("T", " ");
        return new Option(`${when} UTC, ${Math.round(minutes)} min, ${number(km)} km`, trip);
      }),
    );
  }

  offerBundles() {
    const { bundles } = this.page.overview;
    byId("served").hidden = !bundles.length;
    byId("served-list").replaceChildren(
      ...bundles.map(({ name, promise, setting }) => {
        const use = () => this.set({ ...setting, fence_km: this.page.state[this.edited].fence_km });
        const button = element("button", { type: "button", onclick: use }, `Set the sliders as ${name}`);
        return element("li", {}, element("strong", {}, name), `: ${promise.replace("In one sentence: ", "")} `, ...(setting ? [button] : []));
      }),
    );
  }

  /** Answer the three questions: at once, and then with the road simulated. */
  async plan() {
    const chosen = (name) => Number(byId("wish").querySelector(`input[name=${name}]:checked`).value) || null;
    const wish = { home_m: chosen("home"), sure: chosen("sure"), road_m: chosen("road") };
    byId("plan").hidden = false;
    await this.page.attempt(async () => {
      for (const simulate of this.page.overview.roads ? [false, true] : [false]) {
        const plan = await this.loadPlan({ ...wish, simulate });
        if (!plan) return;
        this.showPlan(plan, simulate || !this.page.overview.roads);
        const { epsilon_per_km: epsilon, interval_s: interval } = plan.recommended;
        const fence = wish.home_m ? plan.home.fence_radius_km : null;
        this.edit("a");
        await this.set(possible({ epsilon, interval_s: interval, hold_m: plan.hold_m, fence_km: fence }));
      }
    });
  }

  showPlan({ in_words: words, wishes, judged_by: judged, simulated }, final) {
    const [headline, ...others] = words;
    const about = simulated
      ? `Errors on the road are estimates, by simulation. ${judged}`
      : final
        ? "The service has no roads, so errors on the road are not estimated."
        : "The error on the road is being simulated, and decides how often to report …";
    const outcomes = wishes.map(({ asked_in_words: asked, got_in_words: got, kept }) => {
      const mark = kept === null ? (final ? "not known" : "not yet known") : kept ? "kept" : "not kept";
      return element("li", { class: kept === false ? "unkept" : "" }, `Asked: ${asked}. This plan: ${got} `, element("strong", {}, `(${mark})`), ".");
    });
    const said = others.filter((sentence) => !sentence.startsWith("Not kept"));
    const first = said.filter((sentence) => /^(It keeps|These reports|On the road)/.test(sentence));
    const rest = said.filter((sentence) => !first.includes(sentence));
    byId("plan").replaceChildren(
      element("p", { class: "headline" }, headline),
      element("ul", {}, ...outcomes),
      ...first.map((sentence) => element("p", {}, sentence)),
      element("p", { class: "hint" }, about),
      element("details", {}, element("summary", {}, "All of the plan, in words"), list(rest)),
    );
    byId("plan").setAttribute("aria-busy", String(!final));
  }

  /** A slider moved: show its value at once; what follows from it comes with the release. */
  slide(name) {
    const setting = { ...this.page.state[this.edited] };
    setting[name] = SCALES[name].value(Number(byId(name).value), setting);
    this.page.change({ [this.edited]: possible(setting) });
    this.showSliders();
    this.showFigures();
  }

  /** Take a setting for the sliders' side. */
  set(setting) {
    this.page.change({ [this.edited]: setting });
    this.showSliders();
    return this.begin();
  }

  edit(side) {
    this.edited = side;
    byId("edited").querySelector(`input[value=${side}]`).checked = true;
    this.showSliders();
  }

  showSliders() {
    const { state } = this.page;
    if (!state.b) this.edited = "a";
    byId("edited").hidden = !state.b;
    byId("compare").textContent = state.b ? "Stop comparing" : "Compare with another setting";
    const setting = state[this.edited];
    for (const [name, scale] of Object.entries(SCALES)) {
      const slider = byId(name);
      slider.max = scale.max(setting);
      if (scale.value(Number(slider.value), setting) !== setting[name]) slider.value = scale.at(setting[name], setting);
      const shown = SHOWN[name](setting[name]);
      byId(`${name}-value`).textContent = shown;
      slider.setAttribute("aria-valuetext", shown);
    }
    for (const reader of ["drivers", "officer"]) byId(`for-${reader}`).href = `/explore/handout/${reader}?${queryOf(state.a)}`;
  }

  compare() {
    const { state } = this.page;
    this.page.change({ b: state.b ? null : rival(state.a) });
    this.edit(state.b ? "b" : "a");
    return this.begin();
  }

  async share() {
    await navigator.clipboard?.writeText(window.location.href).catch(() => {});
    byId("shared").textContent = "The address of this page has the settings, and no place. It was copied.";
  }

  async begin() {
    const { settings, page } = this;
    await page.showMaps(settings.length);
    byId("choose-words").textContent = "The service makes a lattice, and drives …";
    const trip = byId("trip").value === "" ? null : Number(byId("trip").value);
    byId("true-trip").hidden = trip === null;
    await Promise.all([
      this.showFigures(),
      page.attempt(async () => {
        const lives = await this.loadLives(settings, page.homeAsked, trip);
        if (lives && page.state.view === "choose") this.take(lives, settings);
      }),
    ]);
  }

  take(lives, settings) {
    const { stage } = this.page;
    const maps = [stage.a, stage.b].slice(0, lives.length);
    const known = this.lives.length === lives.length && String(this.lives[0].home) === String(lives[0].home);
    const at = known ? this.player.at : null;
    this.lives = lives;
    maps.forEach((map, index) => map.take(lives[index], settings[index]));
    byId("title-a").textContent = lives.length > 1 ? `A: ${settingInWords(settings[0])}` : settingInWords(settings[0]);
    if (lives.length > 1) byId("title-b").textContent = `B: ${settingInWords(settings[1])}`;
    const seconds = Math.max(...maps.map((map) => map.driveSeconds));
    const drive = { name: "the drive", seconds: DRIVE_S, show: (share) => this.tellDrive(maps, share * seconds) };
    this.player.take([
      ...(lives[0].drive ? [drive] : []),
      { name: "nights at home", seconds: NIGHTS_S, show: (share) => this.tellNights(maps, share) },
    ]);
    if (!known || maps.length > 1 || maps[0].fenceUnseen) maps[0].map.fit(lives[0].drive ? maps[0].driveBox : maps[0].nightsBox);
    this.player.show(at ?? (lives[0].drive ? 0.4 * DRIVE_S : NIGHTS_S));
    this.showFigures();
    const model = lives[0].drive?.model;
    byId("model").textContent = model ? modelInWords(model) : "";
    document.body.dataset.lives = String(lives.length);
  }

  tellDrive(maps, seconds) {
    const words = maps.map((map, index) => {
      const now = map.showDrive(seconds);
      const { error_m: errors } = map.life.drive.tracked;
      const who = maps.length > 1 ? `${"AB"[index]}: a` : "A";
      return `${who}fter ${now ? `${now + 1} reports` : "one report"} the tracker is ${metres(errors[now])} off now, ${metres(mean(errors.slice(0, now + 1)))} on average.`;
    });
    byId("choose-words").textContent = words.join(" ");
  }

  tellNights(maps, share) {
    const words = maps.map((map, index) => {
      const which = map.life.fenced ? "fenced" : "bare";
      const nights = map.showNights(which, 1 + share * (map.life[which].guesses.length - 1));
      const who = maps.length > 1 ? `${"AB"[index]}: a` : "A";
      return `${who}fter ${nightsInWords(nights)} an attacker is ${metres(map.life[which].error_m[nights - 1])} off the home.`;
    });
    byId("choose-words").textContent = words.join(" ");
  }

  async showFigures() {
    const { settings, page, lives } = this;
    byId("figures").setAttribute("aria-busy", "true");
    await page.attempt(async () => {
      const found = await this.loadFigures(settings);
      if (!found) return;
      const columns = settings.length > 1 ? ["A", "B"] : [];
      byId("figures").replaceChildren(figuresTable(rowsOf(settings, found), columns));
      byId("figures").setAttribute("aria-busy", "false");
      const [{ sections, commands }] = found;
      byId("promise").replaceChildren(
        ...Object.entries(sections).flatMap(([title, sentences]) => [element("h3", {}, title), list(sentences)]),
      );
      byId("commands").textContent = commands.join("\n");
      if (lives.length === settings.length) byId("chart").replaceChildren(nightsChart(linesOf(lives)));
    });
  }
}

/** What follows from settings, row by row. */
function rowsOf(settings, found) {
  const row = (title, hint, value) => [title, hint, ...found.map((each, index) => value(each, settings[index]))];
  const held = settings.every(({ hold_m: hold }) => hold);
  return [
    row("Home, after a month of nights", "how far off an attacker is who sees nights only", ({ fence, found_m: near }) => metres(fence ? fence.home_m : near.month)),
    row("… without a fence", held ? "each return is a new draw" : "every report at rest is a new draw where nothing is held", ({ found_m: near }) => metres(near.month)),
    row("100 m apart, an hour on the road", "how often the best guess is right; 50 would be chance", ({ certainty }) => times(certainty["an hour on the road"])),
    row("… after one report", "", ({ certainty }) => times(certainty["one report"])),
    row("… years of nights in the fence", "", ({ fence }) => (fence ? times(fence.right) : "no fence")),
    row("A single report", "how far off it is on average", ({ report_m: { mean: off } }) => metres(off)),
    row("An hour on the road costs", "ε adds up to, at most", ({ hour_cost: cost }) => `${number(cost)} per km`),
  ];
}

function linesOf(lives) {
  if (lives.length > 1) {
    return lives.map(({ bare, fenced }, index) => ({ kind: index ? "rival" : "guess", values: (fenced ?? bare).error_m, words: "AB"[index] }));
  }
  const [{ bare, fenced }] = lives;
  const without = { kind: fenced ? "rival" : "guess", values: bare.error_m, words: "no fence" };
  return fenced ? [{ kind: "guess", values: fenced.error_m, words: "with the fence" }, without] : [without];
}
