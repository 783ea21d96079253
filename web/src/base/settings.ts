// What a person chose for this browser.
import { effect, signal } from "@preact/signals";

export interface Settings { theme: "system" | "light" | "dark"; letters: boolean; notifications: boolean }

const KEY = "anyplug-settings";
const DEFAULTS: Settings = { theme: "system", letters: true, notifications: false };

function stored(): Settings {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Settings>) };
  } catch {
    return DEFAULTS;
  }
}

export const settings = signal<Settings>(stored());

effect(() => {
  const { theme } = settings.value;
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem(KEY, JSON.stringify(settings.value));
});

export const change = (part: Partial<Settings>) => (settings.value = { ...settings.value, ...part });
