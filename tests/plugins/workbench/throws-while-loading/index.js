module.exports.register = () => {};
throw new TypeError('not today');
