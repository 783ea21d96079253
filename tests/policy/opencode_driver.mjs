// Loads the OpenCode plugin as OpenCode does, and drives its hooks as a script on stdin says.
//
//     {"plugins": [paths], "directory", "worktree", "steps": [step]}
//
// A step calls a hook of every plugin, one after the other ({"hook", "input", "output"}), calls the tool for approvals
// with the request that was named last ({"reply": what the person answers, "session"?, "request"?, "unseen"?: no dialog
// opens}), runs steps at the same time ({"together": [steps]}), writes a file ({"write": path, "text"}) or waits until
// there is one ({"until": path}). stdout has one JSON object: what each step gave, and all toasts.

import fs from 'node:fs';
import { pathToFileURL } from 'node:url';

const script = JSON.parse(fs.readFileSync(0, 'utf8'));
const toasts = [];
const client = {
  tui: {
    showToast: async ({ body }) => {
      toasts.push(body);
      if (script.brokenScreen) throw new Error('no screen');
    },
  },
  mcp: { status: async () => ({ data: script.servers ?? {} }) },
};
const { directory, worktree = directory } = script;
const hooks = [];
for (const plugin of script.plugins) {
  const module = await import(pathToFileURL(plugin));
  for (const start of new Set(Object.values(module))) hooks.push(await start(script.noInput ? { client } : { client, directory, worktree }));
}

let calls = 0;
let named; // the request that an error named last

async function approve({ reply, session = 'ses_1', request = named, unseen }) {
  const { execute } = hooks.find((one) => one.tool).tool.policy_approval;
  const id = `approval_${++calls}`;
  const emit = (type, properties) => Promise.all(hooks.map((one) => one.event?.({ event: { id: 'evt', type, properties } })));
  let asked;
  const ask = async (dialog) => {
    asked = dialog;
    if (unseen) return;
    await emit('permission.asked', { id, sessionID: session, tool: { messageID: 'msg_1', callID: id }, ...dialog });
    setTimeout(() => emit('permission.replied', { sessionID: session, requestID: id, reply }), 10); // as late as it can be
    if (reply === 'reject') throw new Error('rejected');
  };
  return { gave: await execute({ request }, { sessionID: session, callID: id, ask }), asked };
}

async function run(step) {
  if (step.together) return Promise.all(step.together.map(attempt));
  if (step.write) return fs.writeFileSync(step.write, step.text);
  if (step.until) {
    while (!fs.existsSync(step.until)) await new Promise((resolve) => setTimeout(resolve, 20));
    return {};
  }
  if (step.reply) return approve(step);
  const { input = {}, output = {} } = step;
  const given = output.args;
  for (const one of hooks) await one[step.hook]?.(input, output);
  return { input, output, isSameObject: output.args === given };
}

async function attempt(step) {
  try {
    return (await run(step)) ?? {};
  } catch (error) {
    named = /"request": "(\w+)"/.exec(error.message)?.[1] ?? named;
    return { threw: error.message, output: step.output };
  }
}

const results = [];
for (const step of script.steps) results.push(await attempt(step));
process.stdout.write(JSON.stringify({ results, toasts, hooks: hooks.map((one) => Object.keys(one)) }));
for (const one of hooks) await one.dispose?.();
