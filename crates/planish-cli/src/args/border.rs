//! What a plan takes and gives at its border, other than its model does.

/// Types, layouts, and work before and after the model; a plan has them already.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Bordering {
    /// The type and layout of an input or output, as in x:u8:nhwc or y:fp16 (fp32, fp16, bf16, int8, u8, i32, …; nchw, nhwc,
    /// ncdhw, ndhwc, channels-last); may be repeated
    #[arg(long, value_name = "NAME[:TYPE][:LAYOUT]")]
    pub(crate) io: Vec<String>,
    /// What is done to an input first, as in x:resize=256,crop=224,div=255,mean=0.5,std=0.25 or x:imagenet, x:yolo (also
    /// letterbox, bgr, mul, add); may be repeated for other inputs
    #[arg(long, value_name = "NAME:STEP,…")]
    pub(crate) pre: Vec<String>,
    /// What is done to an output at the end, as in y:softmax,topk=5,labels=FILE or y:boxes=yolov8,nms=0.45/0.25 (also
    /// argmax, sigmoid); may be repeated for other outputs
    #[arg(long, value_name = "NAME:STEP,…")]
    pub(crate) post: Vec<String>,
    /// An input that is a state: it is what the output was in the run before, kept where the plan runs, from zeros on; as in
    /// h0=hn, or h0=hn:2x1x128 with the sizes to begin at; may be repeated
    #[arg(long, value_name = "IN=OUT[:SIZES]")]
    pub(crate) state: Vec<String>,
    /// trtexec's formats of inputs and of outputs, in the model's order
    #[arg(skip)]
    pub(crate) formats: [Option<String>; 2],
}
