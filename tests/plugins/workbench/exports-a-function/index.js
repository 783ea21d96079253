module.exports = (api) => api.registerTool({ name: 'exports-a-function.act', run: () => 'done' }); // not register
