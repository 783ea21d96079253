// Stands in for Electron, which is not here: a clipboard, and a clear word for everything else.

'use strict';

const { spawnSync } = require('node:child_process');

const PROGRAM_MS = 12_000; // the host's own program waits 10 s
const GRANTED = process.env.ANYPLUG_CLIPBOARD; // the folder of the host's own programs, if the clipboard was granted
const PROGRAMS = [
  { if: () => GRANTED, read: [`${GRANTED}/wl-paste`, '--no-newline'], write: [`${GRANTED}/wl-copy`], own: true },
  { if: () => process.platform === 'darwin', read: ['pbpaste'], write: ['pbcopy'] },
  { if: () => process.env.WAYLAND_DISPLAY, read: ['wl-paste', '--no-newline'], write: ['wl-copy'] },
  { if: () => process.env.DISPLAY, read: ['xclip', '-selection', 'clipboard', '-out'], write: ['xclip', '-selection', 'clipboard'] },
  { if: () => process.env.DISPLAY, read: ['xsel', '--clipboard', '--output'], write: ['xsel', '--clipboard', '--input'] },
].filter((program) => program.if());

let remembered = ''; // where there is no clipboard but the plugin's own

// The system's clipboard by the first program that is there.
function ask(kind, input) {
  for (const program of PROGRAMS) {
    const [name, ...words] = program[kind];
    const stdout = kind === 'read' ? 'pipe' : 'ignore'; // xclip stays behind to serve what was copied, holding it open
    const stderr = program.own ? 'pipe' : 'ignore';
    const done = spawnSync(name, words, { input, timeout: PROGRAM_MS, encoding: 'utf8', stdio: ['pipe', stdout, stderr] });
    if (!done.error && done.status === 0) return done.stdout ?? '';
    if (program.own) throw new Error(`the clipboard cannot be used: ${done.stderr?.trim() || done.error?.message || 'no answer'}`);
  }
  globalThis[Symbol.for('anyplug.note')]?.('this plugin was not granted the clipboard, so it uses one of its own: `anyplug grant PLUGIN clipboard` gives it yours');
  return undefined;
}

const clipboard = {
  readText: () => ask('read') ?? remembered,
  writeText(text) {
    remembered = String(text);
    ask('write', remembered);
  },
  clear: () => clipboard.writeText(''),
  availableFormats: () => (clipboard.readText() ? ['text/plain'] : []),
};

exports.clipboard = orRefusal(clipboard, 'electron.clipboard'); // by this line `import` knows its name
module.exports = orRefusal(exports, 'electron');

function orRefusal(known, name) {
  return new Proxy(known, {
    get(target, key) {
      if (key in target || typeof key === 'symbol' || key === 'then' || key === '__esModule' || key === 'default') return target[key];
      return refusing(`${name}.${key}`);
    },
  });
}

function refusing(name) {
  const refuse = function () {
    throw new Error(`${name} is not available: anyplug runs plugins without Electron, and offers its clipboard only`);
  };
  return new Proxy(refuse, { get: (target, key) => (typeof key === 'symbol' ? target[key] : refuse()) });
}
