module.exports.register = () => {};
