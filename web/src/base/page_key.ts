// The key of this page, from the link that opened it. The browser sends it to nobody: unlike the cookie, which every port
// of this machine gets to see. Imported before anything reads the address.
const NAME = "anyplug-page";
const GIVEN = /^#page=([\w-]{20,100})$/;

const given = GIVEN.exec(location.hash)?.[1];
if (given) {
  try {
    localStorage.setItem(NAME, given);
  } catch { /* this tab alone has it */ }
  history.replaceState(null, "", location.pathname + location.search);
}

export function pageKey(): string {
  try {
    return localStorage.getItem(NAME) ?? given ?? "";
  } catch {
    return given ?? "";
  }
}
