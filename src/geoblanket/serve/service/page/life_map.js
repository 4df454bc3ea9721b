/** A life on a map: the drive at a moment, or a night at home. */

import { Mark } from "./city_map.js";
import { between, boxAround, boxAt, joined, upTo } from "./geometry.js";

/** Reports that stay bright. */
const TAIL = 8;
/** Circles further away are not brought into sight. */
const FARTHEST_M = 2500;

export class LifeMap {
  /**
   * @param {import("./city_map.js").CityMap} map
   * @param {(point: [number, number]) => void} moved Called when somebody moved the home.
   */
  constructor(map, moved) {
    this.map = map;
    this.marks = {
      guess: new Mark(map, "guess", "The attacker's guess"),
      reported: new Mark(map, "reported", "Last report"),
      vehicle: new Mark(map, "vehicle", "Vehicle"),
      home: new Mark(map, "home", "Home", moved),
    };
    this.step = null;
  }

  /** Take a life as the service tells it. @param {object} life @param {object} setting */
  take(life, setting) {
    Object.assign(this, { life, setting, step: null });
    this.marks.home.put(life.home);
  }

  /** How long the drive takes, with the time at rest, seconds. */
  get driveSeconds() {
    return this.life.drive ? (this.life.drive.true.length - 1) * this.setting.interval_s : 0;
  }

  /** Show the drive some seconds after it began; return the number of the last report. */
  showDrive(seconds) {
    const { drive } = this.life;
    const exact = Math.min(seconds / this.setting.interval_s, drive.true.length - 1);
    const now = Math.floor(exact);
    const line = now + 1 < drive.lines.length ? upTo(drive.lines[now + 1], exact - now) : [];
    const here = line.at(-1) ?? drive.true[now];
    this.marks.vehicle.put(here);
    this.map.showHeat(here, this.setting.epsilon);
    this.map.showWays("moving", [{ kind: "true", points: joined([...drive.lines.slice(Math.max(0, now - 2), now + 1), line]) }]);
    if (this.step === now) return now;
    this.step = now;
    this.map.showWays("ways", [
      { kind: "older", points: joined(drive.lines.slice(0, now + 1)) },
      { kind: "guess", points: drive.tracked.at.slice(Math.max(0, now - TAIL), now + 1) },
    ]);
    this.map.showReports(drive.reports.slice(0, now + 1).map((at, index) => ({ at, age: Math.max(0.18, 1 - (now - index) / TAIL) })));
    this.map.showCircle("within", drive.tracked.at[now], drive.tracked.radius_m[now]);
    this.showFence(this.life.bareDrive ? null : this.life.fence);
    this.marks.guess.put(drive.tracked.at[now]);
    this.marks.reported.put(drive.reports[now]);
    return now;
  }

  /** Show how near an attacker is after some nights, a fraction included. @param {"bare"|"fenced"} which @returns {number} Nights. */
  showNights(which, nights) {
    const { reports, guesses, circle_m: radii } = this.life[which];
    const exact = Math.min(Math.max(nights, 1), guesses.length);
    const now = Math.floor(exact);
    const next = Math.min(now, guesses.length - 1);
    const share = exact - now;
    const guess = between(guesses[now - 1], guesses[next], share);
    this.marks.guess.put(guess);
    this.map.showCircle("within", guess, radii[now - 1] + share * (radii[next] - radii[now - 1]));
    const step = `${which} ${now}`;
    if (this.step === step) return now;
    if (typeof this.step !== "string") {
      for (const source of ["ways", "moving"]) this.map.showWays(source, []);
      this.map.showHeat(null);
      this.marks.vehicle.put(null);
    }
    this.step = step;
    this.showFence(which === "fenced" ? this.life.fence : null);
    this.map.showReports(reports.slice(0, now).map((at, index) => ({ at, age: index === now - 1 ? 1 : 0.45 })));
    this.marks.reported.put(reports[now - 1]);
    return now;
  }

  showFence(fence) {
    this.map.showCircle("fence", fence?.center ?? null, fence?.radius_m);
  }

  /** Whether the fence is out of sight, in part. */
  get fenceUnseen() {
    const { fence } = this.life;
    return fence !== null && !this.map.sees(boxAt(fence.center, fence.radius_m));
  }

  /** The box of the drive. */
  get driveBox() {
    const { drive, home, fence } = this.life;
    const disc = fence ? boxAt(fence.center, fence.radius_m) : [];
    return boxAround([...(drive ? drive.lines.flat() : boxAt(home, FARTHEST_M)), ...disc]);
  }

  /** The box of the nights. */
  get nightsBox() {
    const { bare, fenced, fence, home } = this.life;
    const first = Math.min((fenced ?? bare).circle_m[0], FARTHEST_M);
    return boxAround([...boxAt(home, Math.max(first, 800)), ...(fence ? boxAt(fence.center, fence.radius_m) : [])]);
  }

  /** Take it off the map. */
  clear() {
    for (const mark of Object.values(this.marks)) mark.put(null);
    this.map.clear();
    this.step = null;
  }
}
