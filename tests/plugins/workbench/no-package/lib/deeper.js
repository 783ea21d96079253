module.exports = 'done';
