// Markdown that strangers wrote, as harmless HTML: no raw HTML, no images, only links that begin with http.
import DOMPurify from "dompurify";
import { visible } from "../base/safe_text";

const TAGS = [
  "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong",
  "del", "a", "table", "thead", "tbody", "tr", "th", "td",
];
const WEB = /^https?:/i;
const LONGEST = 200_000; // characters
const LARGEST = 1_000_000; // characters of HTML
const PATIENCE_MS = 2000; // usual texts take some milliseconds

type Answer = { id: number; html: string | null };

let worker: Worker | null = null;
let latest = 0;
let line: Promise<unknown> = Promise.resolve();

/** Parse in the worker; null if that takes too long or fails. */
function parsed(source: string): Promise<string | null> {
  return new Promise((done) => {
    const id = ++latest;
    const busy = (worker ??= new Worker(new URL("./markdown_worker.ts", import.meta.url), { type: "module" }));
    const end = (html: string | null, isStuck: boolean) => {
      clearTimeout(timer);
      busy.onmessage = busy.onerror = null;
      if (isStuck) {
        busy.terminate();
        worker = null;
      }
      done(html);
    };
    const timer = setTimeout(() => end(null, true), PATIENCE_MS);
    busy.onerror = () => end(null, true);
    busy.onmessage = (message: MessageEvent<Answer>) => {
      if (message.data.id === id) end(message.data.html, false);
    };
    busy.postMessage({ id, source });
  });
}

/** Return HTML that can be shown; null if the text can only be shown as it is. */
export async function rendered(source: string): Promise<string | null> {
  const html = await (line = line.then(() => parsed(visible(source.slice(0, LONGEST))))) as string | null;
  if (html === null || html.length > LARGEST) return null;
  const box = DOMPurify.sanitize(html, { ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ["href"], ALLOWED_URI_REGEXP: WEB, RETURN_DOM_FRAGMENT: true });
  for (const link of box.querySelectorAll("a")) {
    const address = link.getAttribute("href");
    if (!address) continue;
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
    if (URL.canParse(address)) link.append(` (${new URL(address).host})`); // where it leads, whatever its text says
    else link.removeAttribute("href");
  }
  const holder = document.createElement("div");
  holder.append(box);
  return holder.innerHTML;
}
