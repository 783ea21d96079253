// Lines of a unified diff; a sign and a word for screen readers, not colour alone.
export function Diff({ text, label }: { text: string | string[]; label: string }) {
  const lines = typeof text === "string" ? text.split("\n") : text;
  if (lines.at(-1) === "") lines.pop();
  return (
    <div class="diff" role="group" aria-label={label} tabIndex={0}>
      {lines.map((line, index) => {
        const kind = line.startsWith("@@") ? "at" : line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : "";
        const word = kind === "plus" ? "added: " : kind === "minus" ? "removed: " : "";
        return (
          <div key={index} class={kind}>
            {word ? <span class="hidden-text">{word}</span> : null}{line || " "}
          </div>
        );
      })}
    </div>
  );
}
