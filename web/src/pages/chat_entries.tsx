// What stands in a conversation: messages, cards of calls, questions, notes.
import { useState } from "preact/hooks";
import { post } from "../base/api";
import { questions } from "../base/live";
import { ANSWERED, duration, outcomeSign, place } from "../base/say";
import type { Word } from "../base/shapes";
import { Mark, Quoted } from "../parts/basics";
import { QuestionCard } from "../questions_bar";
import { Markdown, ResultView } from "../tools/result_view";
import type { Entry } from "./chat_talk";

const SHOWN_LETTERS = 400;

export function EntryView({ entry, at }: { entry: Entry; at: string }) {
  switch (entry.kind) {
    case "user": return <div class="said mine"><b>{entry.plugin ? entry.plugin : "You"}</b><div><Quoted lines>{entry.text}</Quoted></div></div>;
    case "assistant": return (
      <div class="said"><b>Model</b><div>
        {entry.withheld ? <p class="warn">▲ Withheld: <span class="quoted">{entry.withheld}</span></p> : entry.held ? <p class="muted">{entry.held}</p>
          : entry.isWhole ? <Markdown source={entry.text} /> : <span class="quoted lines">{entry.text}</span>}
        {entry.changedBy ? <p class="muted small-text">changed by <span class="quoted">{entry.changedBy}</span></p> : null}
      </div></div>
    );
    case "tool": return <ToolCard entry={entry} />;
    case "question": return <ChatQuestion entry={entry} at={at} />;
    default: return (
      <p class={{ error: "risk", warn: "warn", success: "ok" }[entry.level] ?? "muted"}>
        <span class="quoted lines">{entry.text}</span>{entry.hint ? <span class="muted quoted"> {entry.hint}</span> : null}</p>
    );
  }
}

function ToolCard({ entry }: { entry: Extract<Entry, { kind: "tool" }> }) {
  const [isOpen, open] = useState(false);
  const { result } = entry;
  const outcome = result ? (result.error?.code ?? (result.is_error ? "tool_error" : "done")) : "running";
  const text = result?.error?.message ?? (result ? textOf(result.content as { type: string; text?: string }[]) : entry.progress);
  return (
    <section class="card" aria-label={`Call of ${entry.tool}`}>
      <p class="row spread"><span class="row"><b class="mono quoted">{entry.tool}</b><span class="muted quoted">{entry.plugin}</span></span>
        <span class="row"><Mark sign={outcomeSign(outcome)} />{result ? <span class="muted">{duration(result.duration_ms)}</span> : null}{entry.record ? <a href={`/activity/${entry.record}`}>#{entry.record}</a> : null}</span></p>
      <code class="muted quoted one-line">{JSON.stringify(entry.arguments)}</code>
      {isOpen && result ? <ResultView result={{ ...result, metadata: result.metadata ?? {}, structured: result.structured ?? null, content: result.content ?? [], text: "" }} /> : text ? <p class="quoted lines">{text.length > SHOWN_LETTERS ? `${text.slice(0, SHOWN_LETTERS)}…` : text}</p> : null}
      {result ? <div class="row"><button type="button" class="small" aria-expanded={isOpen} onClick={() => open(!isOpen)}>{isOpen ? "Fold" : "Show all"}</button></div> : null}
    </section>
  );
}

const textOf = (content: { type: string; text?: string }[] | undefined) => (content ?? []).map((block) => (block.type === "text" ? block.text : `[${block.type}]`)).join("\n");

function ChatQuestion({ entry, at }: { entry: Extract<Entry, { kind: "question" }>; at: string }) {
  if (entry.answer) {
    return <p class="muted">? {entry.question.plugin}/{entry.question.tool}: {ANSWERED[entry.answer as Word] ?? entry.answer} {place(entry.by)}</p>;
  }
  const full = questions.value.find((question) => question.id === entry.question.id) ?? entry.question;
  return <QuestionCard question={full} answer={async (word) => { await post(`${at}/answer`, { question: entry.question.id, word }); }} />;
}
