// Buttons that decide work only after their card has stood still, so that no click hits what just came under the pointer.
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

const SETTLE_MS = 500;
const UNSETTLED = Symbol("unsettled");

/** Whether a card has not moved for half a second, and shown the same content. */
export function useSettled(card: RefObject<HTMLElement | null>, content: unknown): boolean {
  const [shown, set] = useState<unknown>(UNSETTLED);
  useEffect(() => settle(card.current!, (is) => set(is ? content : UNSETTLED)), [content]);
  return shown === content;
}

function settle(node: HTMLElement, set: (is: boolean) => void): () => void {
  set(false);
  let place = "";
  let since = performance.now();
  let frame = 0;
  const look = () => {
    const box = node.getBoundingClientRect();
    const main = document.scrollingElement?.scrollTop ?? 0;
    const now = `${Math.round(box.left)},${Math.round(box.top + main)},${Math.round(box.width)},${Math.round(box.height)}`;
    if (now !== place) {
      place = now;
      since = performance.now();
      set(false);
    } else if (performance.now() - since > SETTLE_MS) set(true);
    frame = requestAnimationFrame(look);
  };
  look();
  return () => cancelAnimationFrame(frame);
}
