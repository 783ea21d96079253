module.exports.register = (api) => {
  return <div>pasted from elsewhere</div>;
};
