"""What a box's programs start with, and what the rig's Vast.ai box calls itself."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOX_ID = "21843570"
