/** Light or dark: the system's choice until the reader makes one; and the colours of the map in each. */

const STORED = "geoblanket-theme";

const COLOURS = {
  light: {
    paper: "#eeece5", road: "#ffffff", mainRoad: "#fff3cf", casing: "#cfc9bb", water: "#bcd9e6", park: "#dbe8cf",
    label: "#5f6670", place: "#3b424d", halo: "#f7f6f2", ink: "#1d2530", older: "#878b91", accent: "#0e6f8c", other: "#b4500a",
  },
  dark: {
    paper: "#14181e", road: "#2c343e", mainRoad: "#3b4652", casing: "#14181e", water: "#17303f", park: "#1a2a22",
    label: "#9aa6b2", place: "#c9d1d9", halo: "#14181e", ink: "#f1f4f6", older: "#8b949e", accent: "#5cc4de", other: "#f5a44d",
  },
}; // prettier-ignore

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
