// The gate: Node loads this before a script, by NODE_OPTIONS, and waits here for the call.
//
// It writes to stdout that it is waiting, and how much memory it uses. Then it reads one message from stdin, byte for
// byte, so that what follows is the script's own. An end of file means that nobody will call, and it exits. What was
// changed is undone before the script runs. Worker threads load this, too, when there is nothing to wait for.
"use strict";

const given = process.env._ANYPLUG_WARM;
const Module = require("node:module");
const preloaded = process._preload_modules;
if (Array.isArray(preloaded)) {
  const at = preloaded.indexOf(__filename);
  if (at >= 0) preloaded.splice(at, 1);
}
delete require.cache[__filename];
for (const [key, value] of Object.entries(Module._pathCache)) {
  if (value === __filename) delete Module._pathCache[key];
}
if (module.parent && Array.isArray(module.parent.children)) {
  const at = module.parent.children.indexOf(module);
  if (at >= 0) module.parent.children.splice(at, 1);
}
if (given !== undefined) {
  const fs = require("node:fs");
  try {
    const [word, options] = JSON.parse(Buffer.from(given, "hex").toString());
    delete process.env._ANYPLUG_WARM;
    if (options === null) delete process.env.NODE_OPTIONS;
    else process.env.NODE_OPTIONS = options;
    const pages = fs.readFileSync("/proc/self/statm", "latin1").split(" ")[1];
    fs.writeSync(1, `${word} ${pages}\n`);
    const wanted = Buffer.from(word, "latin1");
    const message = Buffer.alloc(wanted.length);
    let size = 0;
    while (size < wanted.length) {
      const read = fs.readSync(0, message, size, wanted.length - size, null);
      if (read === 0) process.reallyExit(0);
      size += read;
    }
    if (!message.equals(wanted)) process.reallyExit(70);
    fs.writeSync(1, "!"); // from here on, the script counts as begun
  } catch (error) {
    try {
      fs.writeSync(2, `the gate failed: ${error}\n`);
    } finally {
      process.reallyExit(70);
    }
  }
}
