"""The suite: its models and their inputs, the one list for everything that measures."""

# Inputs as xtask/python/feeds.py reads them; B stands for the batch.
SUITE = {
    "resnet18_224": "x=noise:Bx3x224x224",
    "resnet18_256": "x=noise:Bx3x256x256",
    "resnet18_384": "x=noise:Bx3x384x384",
    "resnet18_512": "x=noise:Bx3x512x512",
    "resnet50_224": "x=noise:Bx3x224x224",
    "mobilenet_v2_224": "x=noise:Bx3x224x224",
    "efficientnet_b0_224": "x=noise:Bx3x224x224",
    "convnext_tiny_224": "x=noise:Bx3x224x224",
    "cifar_cnn": "x=uniform(0,1):Bx32x32x3",
    "labelfree_unet2d_256": "x=noise:Bx1x256x256",
    "seg_unet3d_64": "x=noise:Bx1x64x64x64",
    "mae3d_64": "x=noise:Bx1x64x64x64",
    "gen_encoder_256": "image=noise:Bx3x256x256",
    "gen_unet_32": "latent=noise:Bx4x32x32",
    "gen_decoder_32": "latent=noise:Bx4x32x32",
    "minilm_128": "ids=ids(30522):Bx128",
    "bert_base_128": "ids=ids(30522):Bx128",
    "vit_b_16_224": "x=noise:Bx3x224x224",
}

# name -> input and its sizes after the batch
INPUTS = {name: (feed.split("=")[0], feed.rsplit(":B", 1)[1].removeprefix("x")) for name, feed in SUITE.items()}
