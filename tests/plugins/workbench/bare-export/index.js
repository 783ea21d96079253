export const register = (api) => api.registerTool({ name: 'bare-export.act', inputSchema: {}, run: () => 'done' });
