/** Light or dark: the system's choice until the reader makes one; and the colours of the map in each. */

const STORED = "geoblanket-theme";

/** Above these probabilities a place has the next colour; fixed, so that mechanisms can be compared. */
export const STEPS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.25];
/** The same for cells of a lattice, whose size differs: the probability of a hectare, 100 m by 100 m. */
export const HECTARE_STEPS = [0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01];

const COLOURS = {
  light: {
    paper: "#f7f8f6", road: "#c3c9ce", mainRoad: "#a3adb5", border: "#5b6673", ink: "#1d2530",
    accent: "#0e6f8c", other: "#a94f06",
    report: ["#e4eff3", "#c6e0e8", "#9bcad9", "#64abc3", "#318ba8", "#0e6f8c", "#07465a"],
  },
  dark: {
    paper: "#12161c", road: "#343d47", mainRoad: "#4b5763", border: "#93a0ad", ink: "#e6eaee",
    accent: "#5cc4de", other: "#f3a44c",
    report: ["#162731", "#17394a", "#1a5065", "#216b86", "#2f90ae", "#5cc4de", "#c0f1ff"],
  },
};

const system = window.matchMedia("(prefers-color-scheme: dark)");

export const theme = () => document.documentElement.dataset.theme;
export const colours = () => COLOURS[theme()];

function apply() {
  const dark = (localStorage.getItem(STORED) ?? (system.matches ? "dark" : "light")) === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** Make a button change the theme. @param {HTMLButtonElement} button @param {() => void} changed */
export function followTheme(button, changed) {
  const show = () => {
    apply();
    const other = theme() === "dark" ? "Light" : "Dark";
    button.textContent = other;
    button.setAttribute("aria-label", `${other} colours`);
    changed();
  };
  button.addEventListener("click", () => {
    localStorage.setItem(STORED, theme() === "dark" ? "light" : "dark");
    show();
  });
  system.addEventListener("change", show);
  show();
}

apply();
