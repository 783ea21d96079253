const run = () => 'done';
module.exports.register = (api) => {
  for (const name of ['odd-names.act', 'Two Words', 'nodot', 'a.b.c.d', 'ünï.çødé', '', '   ', 'line\nbreak', 'nul\0', 'half \ud800', 7, undefined, null]) {
    api.registerTool({ name, run });
  }
  api.registerTool();
  api.registerTool(null);
  api.registerTool('odd-names.text');
  api.registerTool({ name: 'odd.norun' });
  api.registerTool({ name: 'odd.textrun', run: 'later' });
};
