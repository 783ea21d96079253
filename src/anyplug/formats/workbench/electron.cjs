// Stands in for Electron, which is not here: a clipboard, and a clear word for everything else.

'use strict';

const { spawnSync } = require('node:child_process');

const PROGRAM_MS = 2_000;
const PROGRAMS = [
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
    const done = spawnSync(name, words, { input, timeout: PROGRAM_MS, encoding: 'utf8', stdio: ['pipe', stdout, 'ignore'] });
    if (!done.error && done.status === 0) return done.stdout ?? '';
  }
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
