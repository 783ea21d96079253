// The questions that wait, over every page. A question never takes the focus, and its buttons work only after it has
// stood still for a moment, so that nothing is answered by accident.
import { useRef, useState } from "preact/hooks";
import { ApiError, post, segment } from "./base/api";
import { answers, close, isCut, questions } from "./base/live";
import { ANSWERED, place, riskSign, seconds } from "./base/say";
import type { Answered, Question, Word } from "./base/shapes";
import { ErrorBox, Mark, useNow } from "./parts/basics";
import { useSettled } from "./parts/settled";
import { middle } from "./base/safe_text";

const SHOWN_LETTERS = 72;

export function QuestionsBar() {
  const [isOpen, open] = useState(false);
  const [at, setAt] = useState("");
  const list = questions.value;
  const index = Math.max(0, list.findIndex((question) => question.id === at));
  const question = list[index];
  if (!question && !answers.value.length) return null;
  return (
    <section class="questions" aria-label="Questions that wait for you">
      <p class="hidden-text" role="status">{list.length ? `${list.length} waiting: ${list[0]!.plugin} wants to run ${list[0]!.tool}` : ""}</p>
      {answers.value.map((answered) => <AnsweredLine key={answered.id} answered={answered} />)}
      {question ? (
        <>
          <div class="line ask">
            <p>
              <b><span aria-hidden="true">? </span>{list.length} waiting</b>: <span class="quoted">{question.plugin}{question.tool.startsWith("/") ? " " : "/"}{question.tool}</span>
            </p>
            <button type="button" aria-expanded={isOpen} aria-controls="question" onClick={() => open(!isOpen)}>{isOpen ? "Fold" : "Review"}</button>
          </div>
          {isOpen ? (
            <div id="question">
              {list.length > 1 ? (
                <div class="row pager">
                  <button type="button" class="small" disabled={index === 0} onClick={() => setAt(list[index - 1]!.id)}>‹ Previous</button>
                  <span>{index + 1} of {list.length}</span>
                  <button type="button" class="small" disabled={index === list.length - 1} onClick={() => setAt(list[index + 1]!.id)}>Next ›</button>
                </div>
              ) : null}
              <QuestionCard key={question.id} question={question} answer={(word) => answerQuestion(question, word)} />
            </div>
          ) : null}
        </>
      ) : null}
    </section>
  );
}

/** Answer; if somebody was first, show who. */
export async function answerQuestion(question: Question, word: Word): Promise<void> {
  try {
    await post(`/questions/${segment(question.id)}/answer`, { word });
    close({ id: question.id, word, by: "console", at: Date.now() / 1000, plugin: question.plugin, tool: question.tool });
  } catch (error) {
    const first = error instanceof ApiError ? (error.body.answered as Partial<Answered> | undefined) : undefined;
    if (first?.word) {
      close({ id: question.id, word: first.word, by: first.by ?? "", at: first.at ?? 0, plugin: question.plugin, tool: question.tool });
    } else if (error instanceof ApiError && error.code === "not_found") {
      close({ id: question.id, word: "withdrawn", by: "", at: Date.now() / 1000, plugin: question.plugin, tool: question.tool });
    } else throw error;
  }
}

function AnsweredLine({ answered }: { answered: Answered }) {
  const now = useNow();
  return (
    <div class="line ok" role="status">
      <p>
        <span aria-hidden="true">{answered.word === "no" ? "✗ " : answered.word === "withdrawn" ? "– " : "✓ "}</span>
        <span class="quoted">{answered.plugin}/{answered.tool}</span>: {ANSWERED[answered.word] ?? answered.word} {place(answered.by)}
        {answered.at ? `, ${seconds(now / 1000 - answered.at)} ago` : ""}
      </p>
    </div>
  );
}

/** The questions about what this page just began, where it was begun. */
export function AskedHere({ tool }: { tool?: string }) {
  const here = questions.value.filter((question) => question.kind === "console" && (!tool || question.tool === tool));
  return <>{here.map((question) => <QuestionCard key={question.id} question={question} answer={(word) => answerQuestion(question, word)} />)}</>;
}

const LABELS: Record<Word, string> = {
  once: "Allow once", attachment: "Allow for this caller", always: "Always allow", no: "Don't allow",
};
const KINDS: Record<string, string> = {
  mcp: "Allow for this agent", chat: "Allow for this chat", cli: "Allow for this run", console: "Allow for this page",
};

/** One question with all that is needed to decide; used by the bar and by the chat. */
export function QuestionCard({ question, answer }: { question: Question; answer: (word: Word) => Promise<void> }) {
  const [isBusy, setBusy] = useState(false);
  const [isWhole, setWhole] = useState(false);
  const [wantsAlways, wantAlways] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const card = useRef<HTMLDivElement>(null);
  const now = useNow();
  const isSettled = useSettled(card, wantsAlways);
  const isOff = !isSettled || isBusy || isCut.value;
  const say = async (word: Word) => {
    if (isOff) return;
    setBusy(true);
    setError(null);
    try {
      await answer(word);
    } catch (failure) {
      setError(failure as ApiError);
      setBusy(false);
    }
  };
  const { texts } = question;
  const words = question.words.length ? question.words : (["once", "attachment", "always", "no"] as Word[]);
  const label = (word: Word) => (word === "attachment" ? (KINDS[question.kind] ?? LABELS.attachment) : LABELS[word]);
  const who = [question.agent || "", question.at ? `${seconds(now / 1000 - question.at)} ago` : ""].filter(Boolean).join(", ");
  return (
    <div class="card question" ref={card} role="group" aria-label={`Question: ${question.plugin} wants to run ${question.tool}`}>
      <h2 class="quoted">{texts?.title || `${question.plugin} wants to run ${question.tool}`}</h2>
      <p class="row">
        {question.risk.map((risk) => <Mark key={risk} sign={riskSign(risk)} />)}
        {who ? <span class="muted">asked {question.agent ? "by " : ""}{who}</span> : null}
      </p>
      {question.callers.length ? <p>Called by <span class="quoted">{question.callers.join(" → ")}</span></p> : null}
      {question.asker ? <p>Asked because of <span class="quoted">{question.asker}</span></p> : null}
      {question.warning ? <p class="warn"><span aria-hidden="true">▲ </span><span class="quoted">{question.warning}</span></p> : null}
      <Arguments values={question.arguments} isWhole={isWhole} />
      <button type="button" class="small" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>{isWhole ? "Fewer details" : "Details"}</button>
      {isWhole ? (
        <ul>{question.permission_texts.map((text, index) => <li key={index} class="quoted">{text}</li>)}</ul>
      ) : null}
      <dl class="facts">
        {texts?.now ? <div><dt>Now</dt><dd class="quoted">{texts.now}</dd></div> : null}
        {texts?.could ? <div><dt>It could</dt><dd class="quoted">{texts.could.replace(/^It could /, "")}</dd></div> : null}
      </dl>
      {error ? <ErrorBox error={error} /> : null}
      {wantsAlways ? (
        <div class="answers">
          <p><b>Always allow?</b> {texts?.always || "For every chat and agent, until the plugin changes."}</p>
          <button type="button" class="answer" aria-disabled={isOff} onClick={() => void say("always")}>Always allow</button>
          <button type="button" onClick={() => wantAlways(false)}>Back</button>
        </div>
      ) : (
        <div class="answers">
          {words.map((word) => (
            <button type="button"
              key={word} class={`answer${word === "no" ? " no" : ""}`} aria-disabled={isOff}
              onClick={() => (word === "always" ? !isOff && wantAlways(true) : void say(word))}
            >
              <b>{label(word)}{word === "always" ? "…" : ""}</b><span>{texts?.[word] ?? ""}</span>
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

function Arguments({ values, isWhole }: { values: Record<string, unknown>; isWhole: boolean }) {
  const names = Object.keys(values ?? {});
  if (!names.length) return <p class="muted">Without arguments.</p>;
  return (
    <dl class="arguments">
      {names.map((name) => {
        const text = JSON.stringify(values[name]) ?? "";
        return (
          <div key={name}>
            <dt>{isWhole ? name : middle(name, SHOWN_LETTERS)}</dt>
            <dd class={isWhole ? "lines" : ""}>{isWhole ? text : middle(text, SHOWN_LETTERS)}</dd>
          </div>
        );
      })}
    </dl>
  );
}
