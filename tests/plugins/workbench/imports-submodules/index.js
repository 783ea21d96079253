module.exports.register = (api) => {
  api.registerTool({
    name: 'imports-submodules.act',
    inputSchema: {},
    run: async () => {
      const { Report } = await import('./lib/report.js');
      return { content: 'done', metadata: { report: new Report() } };
    },
  });
};
