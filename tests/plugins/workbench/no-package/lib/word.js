module.exports.word = require('./deeper.js');
