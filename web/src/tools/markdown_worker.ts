// Markdown to HTML in a thread of its own: a text can be made so that parsing it takes minutes.
import { Marked } from "marked";

const escaped = (text: string) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  async: false,
  renderer: {
    html: (token) => escaped(token.text),
    image: (token) => `[${escaped(token.text || "image")}]`,
  },
});

onmessage = (message: MessageEvent<{ id: number; source: string }>) => {
  const { id, source } = message.data;
  try {
    postMessage({ id, html: marked.parse(source) });
  } catch {
    postMessage({ id, html: null });
  }
};
