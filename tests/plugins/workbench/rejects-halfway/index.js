module.exports.register = async (api) => {
  api.registerTool({ name: 'rejects-halfway.act', inputSchema: {}, run: () => 'done' });
  await null;
  throw 'no key at all';
};
