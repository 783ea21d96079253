// Show what strangers wrote as text, with nothing hidden in it. A hook on Preact cleans every string that is rendered,
// so that no page can forget to.
import { options, type VNode } from "preact";

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const PILED_UP = /(\p{M}{4})\p{M}+/gu; // marks over one letter: more than any script needs cover their neighbours
const PICTOGRAPHIC = /\p{Extended_Pictographic}|\uFE0F/u;
const SHOWN_ATTRIBUTES = ["title", "aria-label", "placeholder", "alt", "label"];

/** Name control, bidi and zero-width characters: U+202E becomes ⟨U+202E⟩. Line breaks and tabs stay. */
export function visible(text: string): string {
  return text
    .replace(HIDDEN, (sign, at: number) => {
      if (sign === "\n" || sign === "\t") return sign;
      if (sign === "\r" && text[at + 1] === "\n") return "";
      const isOfEmoji = (sign === "\uFE0F" || sign === "\u200D") && at > 0 && PICTOGRAPHIC.test(before(text, at));
      if (isOfEmoji) return sign;
      return `⟨U+${sign.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`;
    })
    .replace(PILED_UP, "$1⟨…⟩");
}

function before(text: string, at: number): string {
  const pair = text.slice(Math.max(0, at - 2), at);
  return pair.length === 2 && pair.codePointAt(0)! > 0xffff ? pair : pair.slice(-1);
}

/** Shorten a text in its middle, so that both ends can be checked. */
export function middle(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const half = Math.floor((longest - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

function cleaned(child: unknown): unknown {
  if (typeof child === "string") return visible(child);
  return Array.isArray(child) ? child.map(cleaned) : child;
}

/** Install the hook; before the first render. */
export function showAllTextSafely(): void {
  const next = options.vnode;
  options.vnode = (vnode: VNode) => {
    if (typeof vnode.type === "string") {
      const props = vnode.props as Record<string, unknown>;
      if (props.children !== undefined) props.children = cleaned(props.children) as never;
      for (const name of SHOWN_ATTRIBUTES) if (typeof props[name] === "string") props[name] = visible(props[name]);
    }
    next?.(vnode);
  };
}
