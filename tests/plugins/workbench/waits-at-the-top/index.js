const word = await new Promise((resolve) => setTimeout(resolve, 10, 'done'));
export const register = (api) => api.registerTool({ name: 'waits-at-the-top.act', inputSchema: {}, run: () => word });
