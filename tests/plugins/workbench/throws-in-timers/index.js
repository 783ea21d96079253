module.exports.register = (api) => {
  setTimeout(() => {
    throw new Error('thrown in a timer');
  }, 1);
  setTimeout(() => Promise.reject(new Error('rejected in a timer')), 1);
  setTimeout(() => Promise.reject(null), 1);
  setTimeout(() => {
    throw undefined;
  }, 1);
  api.registerTool({ name: 'throws-in-timers.act', inputSchema: {}, run: () => new Promise((resolve) => setTimeout(resolve, 50, 'done')) });
};
