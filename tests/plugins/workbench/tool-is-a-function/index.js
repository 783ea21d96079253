function act() {}
Object.defineProperty(act, 'name', { value: 'tool-is-a-function.act' });
act.run = () => 'done';
exports.register = (api) => api.registerTool(act);
