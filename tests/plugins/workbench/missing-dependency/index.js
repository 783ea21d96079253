const api = require('no-such-package-anywhere');
module.exports.register = () => {};
