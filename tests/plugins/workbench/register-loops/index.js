module.exports.register = () => {
  for (;;);
};
