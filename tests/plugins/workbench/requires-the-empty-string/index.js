const nothing = require('');
module.exports.register = () => {};
