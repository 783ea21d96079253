// A problem with its cure: a button where one request cures it, else the command to copy.
import { useState } from "preact/hooks";
import { post, segment } from "../base/api";
import { go } from "../base/route";
import type { Cure, Problem } from "../base/shapes";
import { Copy, ErrorBox, Quoted, Told, useAction } from "./basics";

const COMMAND = /`([^`]+)`/;

export function CureButton({ cure, done }: { cure: Cure; done?: (() => void) | undefined }) {
  const action = useAction();
  const [said, say] = useState("");
  const at = `/plugins/${segment(cure.plugin)}`;
  const cureIt = async () => {
    if (cure.action === "approve") return go(`${at}#changes`);
    if (cure.action === "config") return go(`${at}#config`);
    if (cure.action === "grants") return go(`${at}#permissions`);
    await action.run(async () => {
      const answer = await post<{ message?: string }>(`${at}/${cure.action}`);
      say(answer.message || "Done");
      done?.();
    });
  };
  return (
    <>
      <button type="button" class="small" disabled={action.isBusy} onClick={() => void cureIt()}>{cure.label}</button>
      {said ? <span role="status" class="muted">{said}</span> : null}
      {action.error ? <ErrorBox error={action.error} /> : null}
    </>
  );
}

export function ProblemBox({ problem, done }: { problem: Problem; done?: () => void }) {
  const command = COMMAND.exec(problem.hint)?.[1];
  return (
    <div class={`box ${problem.level === "error" ? "risk" : "warn"}`}>
      <p><span aria-hidden="true">{problem.level === "error" ? "! " : "▲ "}</span><Quoted lines>{problem.message}</Quoted></p>
      {problem.hint ? <p class="muted"><Told>{problem.hint}</Told></p> : null}
      {problem.cure || command ? (
        <div class="row">
          {problem.cure ? <CureButton cure={problem.cure} done={done} /> : null}
          {command ? <Copy text={command}>Copy command</Copy> : null}
        </div>
      ) : null}
    </div>
  );
}
