// Lines of a panel as a terminal would colour them. Only colours and weights are taken; every other control stays text.
export interface Span { text: string; look: string }

const SGR = /\u001b\[([0-9;]*)m/g;
const OTHER = /\u001b(\[[0-9;?]*[A-Za-z]|\][^\u0007\u001b]*(\u0007|\u001b\\))/g; // moves, clears, titles
const WEIGHTS: Record<number, string> = { 1: "sgr-bold", 2: "sgr-dim", 3: "sgr-italic", 4: "sgr-under", 7: "sgr-reverse" };

export function spans(line: string): Span[] {
  const text = line.replace(OTHER, (code) => (/m$/.test(code) && code[1] === "[" ? code : ""));
  const found: Span[] = [];
  let looks = new Set<string>();
  let from = 0;
  const add = (to: number) => { if (to > from) found.push({ text: text.slice(from, to), look: [...looks].join(" ") }); };
  for (const match of text.matchAll(SGR)) {
    add(match.index);
    from = match.index + match[0].length;
    looks = applied(looks, (match[1] || "0").split(";").map(Number));
  }
  add(text.length);
  return found;
}

function applied(looks: Set<string>, codes: number[]): Set<string> {
  const next = new Set(looks);
  const colour = (name: string) => {
    for (const look of next) if (/^sgr-\d$/.test(look)) next.delete(look);
    if (name) next.add(name);
  };
  for (let index = 0; index < codes.length; index++) {
    const code = codes[index]!;
    if (code === 0) next.clear();
    else if (WEIGHTS[code]) next.add(WEIGHTS[code]);
    else if (code === 22) { next.delete("sgr-bold"); next.delete("sgr-dim"); }
    else if (code === 23) next.delete("sgr-italic");
    else if (code === 24) next.delete("sgr-under");
    else if (code === 27) next.delete("sgr-reverse");
    else if (code >= 30 && code <= 37) colour(`sgr-${code - 30}`);
    else if (code >= 90 && code <= 97) colour(`sgr-${code - 90}`);
    else if (code === 39) colour("");
    else if (code === 38 || code === 48) {
      if (code === 38 && codes[index + 1] === 5 && codes[index + 2]! < 16) colour(`sgr-${codes[index + 2]! % 8}`);
      index += codes[index + 1] === 2 ? 4 : 2;
    }
  }
  return next;
}
