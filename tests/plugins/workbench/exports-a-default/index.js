export default { register: (api) => api.registerTool({ name: 'exports-a-default.act', run: () => 'done' }) };
