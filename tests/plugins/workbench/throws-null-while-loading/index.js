module.exports.register = () => {};
throw null;
