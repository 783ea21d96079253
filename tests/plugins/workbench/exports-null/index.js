module.exports = null; // and no register
