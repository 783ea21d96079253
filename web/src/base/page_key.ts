// The key of this page, from the link that opened it. The browser sends it to nobody: unlike the cookies, which every port
// of this machine gets to see. It belongs to one project, and a tab keeps to its own: several may be open side by side.
// Imported before anything reads the address.
const NAME = "anyplug-page";
const PROJECT = "anyplug-project";
const GIVEN = /^#page=((\w+)\.[\w-]{20,100})$/;

const own = () => sessionStorage;
const shared = () => localStorage;

function read(area: () => Storage, name: string): string {
  try {
    return area().getItem(name) ?? "";
  } catch {
    return "";
  }
}

function keep(area: () => Storage, name: string, value: string): void {
  try {
    area().setItem(name, value);
  } catch { /* this page alone has it */ }
}

const [, given = "", ofGiven = ""] = GIVEN.exec(location.hash) ?? [];

/** The project that this tab shows. A new tab shows that of the tab used last. */
export const project = ofGiven || read(own, PROJECT) || read(shared, PROJECT);

const remember = () => keep(shared, PROJECT, project);
if (given) {
  keep(shared, `${NAME}-${project}`, given);
  history.replaceState(null, "", location.pathname + location.search);
}
if (project) {
  keep(own, PROJECT, project);
  remember();
  for (const use of ["focus", "pointerdown", "keydown"]) addEventListener(use, remember, true);
} else {
  addEventListener("storage", (event) => event.key === PROJECT && location.reload()); // a link was opened
}

export const pageKey = () => read(shared, `${NAME}-${project}`) || given;

/** A path of the API that the browser itself asks for, without headers: it names the tab's project. */
export const ofThisTab = (path: string) => `${path}${path.includes("?") ? "&" : "?"}page=${project}`;
