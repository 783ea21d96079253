module.exports.register = (api) => {
  api.registerTool({ name: 'throws-halfway.act', inputSchema: {}, run: () => 'done' });
  throw new Error('no key in the drawer');
};
