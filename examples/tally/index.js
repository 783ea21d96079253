// Counts things by name. The counts live as long as the plugin's process does.

const BAR = 20; // characters of the longest bar

module.exports.register = (api) => {
  const counts = new Map();
  const done = []; // what was added, so that it can be taken back

  const state = () => Object.fromEntries(counts);

  const add = (what, by) => {
    const count = (counts.get(what) ?? 0) + by;
    if (count) counts.set(what, count);
    else counts.delete(what);
    return count;
  };

  api.registerTool({
    name: 'tally.add',
    description: 'Count something: one of it, or more.',
    inputSchema: {
      type: 'object',
      properties: {
        what: { type: 'string', description: 'What is counted.' },
        by: { type: 'number', description: 'How many; 1 if it is left out.' },
      },
      required: ['what'],
    },
    run: async ({ what, by = 1 }) => {
      if (!what) return { content: 'Say what to count.', error: 'what is missing', metadata: state() };
      done.push({ what, by });
      return { content: `${what}: ${add(what, by)}`, metadata: state() };
    },
  });

  api.registerTool({
    name: 'tally.undo',
    description: 'Take the last count back.',
    inputSchema: { type: 'object', properties: {} },
    run: async () => {
      const last = done.pop();
      if (!last) return { content: 'There is nothing to take back.', error: 'nothing was counted', metadata: state() };
      return { content: `${last.what}: ${add(last.what, -last.by)}`, metadata: state() };
    },
  });

  api.registerTool({
    name: 'tally.show',
    description: 'Show all counts as bars, the largest first.',
    inputSchema: { type: 'object', properties: {} },
    run: async () => {
      const rows = [...counts].sort(([, a], [, b]) => b - a);
      const largest = Math.max(1, ...rows.map(([, count]) => Math.abs(count)));
      const width = Math.max(0, ...rows.map(([what]) => what.length));
      const bar = (count) => '█'.repeat(Math.ceil((Math.abs(count) / largest) * BAR));
      const lines = rows.map(([what, count]) => `${what.padEnd(width)}  ${bar(count)} ${count}`);
      return { content: lines.join('\n') || 'Nothing was counted yet.', metadata: state() };
    },
  });
};
