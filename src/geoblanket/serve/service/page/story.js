/** The story: a drive home, nights without a fence, and the same nights with one. It plays by itself. */

import { Player } from "./player.js";
import * as service from "./service.js";
import { byId, drawn, metres, nightsInWords, number } from "./words.js";

const [DRIVE_S, PARKED_S, NIGHTS_S] = [14, 3, 8];
const FENCE_KM = 1;

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

export class StoryView {
  /** @param {object} page What all views share: state, stage and `attempt`. */
  constructor(page) {
    this.page = page;
    this.load = service.latestOnly((setting, home) =>
      Promise.all([{ ...setting, fence_km: null }, setting].map((each) => service.life({ setting: each, home, trip: null }))),
    );
    this.player = new Player({ button: byId("story-play"), slider: byId("story-at"), ready: () => page.settled });
    byId("story-own").addEventListener("click", () => page.go("choose"));
  }

  async enter() {
    const { stage, state } = this.page;
    const setting = { ...state.a, fence_km: state.a.fence_km ?? FENCE_KM };
    byId("story-title").textContent = "A drive home";
    byId("story-words").textContent = "The service makes a lattice, and drives …";
    await this.page.attempt(async () => {
      const lives = await this.load(setting, this.page.homeAsked);
      if (!lives || state.view !== "story") return;
      const [bare, fenced] = lives;
      // The fence comes with its own part of the story.
      await this.take({ ...bare, fence: fenced.fence, fenced: fenced.fenced, bareDrive: true }, setting, stage.a);
    });
  }

  leave() {
    this.player.stop();
  }

  async take(life, setting, map) {
    map.take(life, setting);
    const drive = life.drive && Math.max(life.drive.true.findIndex((at) => String(at) === String(life.drive.true.at(-1))), 1);
    const home = drive * setting.interval_s;
    const parts = life.drive
      ? [
          { name: "the drive", seconds: DRIVE_S, show: (share) => this.tellDrive(map, share * home, false) },
          { name: "parked", seconds: PARKED_S, show: (share) => this.tellDrive(map, home + share * (map.driveSeconds - home), true) },
        ]
      : [];
    this.box = null;
    this.player.take([
      ...parts,
      { name: "nights without a fence", seconds: NIGHTS_S, show: (share) => this.tellNights(map, "bare", share) },
      { name: "nights with a fence", seconds: NIGHTS_S, show: (share) => this.tellNights(map, "fenced", share) },
    ]);
    await map.map.loaded;
    await drawn();
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) this.player.showEnd();
    else {
      this.player.show(0);
      this.player.play();
    }
  }

  /** Bring a part of the story into sight, once. */
  look(map, name, box) {
    if (this.box === name) return;
    this.box = name;
    map.map.fit(box);
  }

  tellDrive(map, seconds, parked) {
    this.look(map, "drive", map.driveBox);
    const now = map.showDrive(seconds);
    const { error_m: errors, radius_m: radii } = map.life.drive.tracked;
    const report = metres(2000 / map.setting.epsilon);
    byId("story-title").textContent = parked ? "It parks" : "A drive home";
    byId("story-figure").textContent = `${metres(parked ? errors[now] : mean(errors.slice(0, now + 1)))} off`;
    byId("story-words").textContent = parked
      ? map.setting.hold_m
        ? "At rest the last report is repeated. An hour tells no more than one report, and the circle stays where it is."
        : "Nothing is held: every report at rest is a new draw, and draws average out."
      : `Blue dots are reports. Each is drawn at random, ${report} from the truth on average. Somebody follows all of them ` +
        `(orange): on average so far they are this far off. Their circle of ${metres(radii[now])} holds the vehicle nine times out of ten.`;
  }

  tellNights(map, which, share) {
    this.look(map, "nights", map.nightsBox);
    const nights = map.showNights(which, 1 + share * (map.life[which].guesses.length - 1));
    const off = (kind) => metres(map.life[kind].error_m[nights - 1]);
    const fence = number(map.setting.fence_km);
    byId("story-title").textContent = `${nightsInWords(nights)[0].toUpperCase()}${nightsInWords(nights).slice(1)} at home, ${which === "bare" ? "no fence" : "with a fence"}`;
    byId("story-figure").textContent = `${off(which)} off`;
    byId("story-words").textContent =
      which === "bare"
        ? `Each return is a new draw, and draws average out. The attacker's circle closes in on the home. Measured over ${map.life.bare.lives} homes here.`
        : `Every position within the dashed circle counts as its centre, which was drawn once, within ${fence} km of the home. ` +
          `The attacker finds the centre, and no more: ${off("fenced")} off, instead of ${off("bare")} without the fence.`;
  }
}
